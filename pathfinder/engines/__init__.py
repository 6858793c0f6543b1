"""Text generation: in process, behind an OpenAI-compatible server, by vLLM; with journal and budget."""
