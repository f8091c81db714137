"""What an owner node keeps: owner.db, the sealed fragments, and who is at work with them."""
