"""Items of responses: those that clients send, their messages for the model, and those sent."""
