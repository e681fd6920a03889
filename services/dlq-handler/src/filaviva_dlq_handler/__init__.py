"""The dlq-handler: dead letters in groups, alerts about them, and the way back."""
