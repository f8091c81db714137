"""The wire: protobuf messages, Arrow fragments in chunks, and errors as gRPC status."""
