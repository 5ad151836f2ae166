"""`/v1/responses`: OpenAI's Responses, with stored responses, conversations and background runs."""
