"""The report: results, evidence, tables, charts, claims, and the page and files made of them."""
