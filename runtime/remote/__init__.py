"""An engine on another machine: `caesura serve`, or any server that speaks OpenAI's protocol."""
