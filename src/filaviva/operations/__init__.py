"""What a person or a program asks for: the same functions for HTTP, CLI and console."""
