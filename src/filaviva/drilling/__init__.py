"""The drill: cut a provider on the running stack, and check what the product promises about it."""
