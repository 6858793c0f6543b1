"""Text generation in process, behind an OpenAI-compatible server or by vLLM, with journal and budget."""
