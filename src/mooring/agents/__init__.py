"""How agents get their tools: layers, the agents' own functions, and an adapter for each kind of agent."""
