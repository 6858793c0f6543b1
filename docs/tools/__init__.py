"""The tools that write pages: figures, pictures and tables that the code knows."""
