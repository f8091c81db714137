"""Protobuf messages and gRPC services of package tessera.v1, generated from proto/ by `make proto`."""
