"""The catalogue of tamperings with a finished run, by what they change."""
