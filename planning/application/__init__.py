"""What an application is: its models, its tasks and their requests."""
