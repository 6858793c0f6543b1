"""The report: results, evidence, tables, plots and claims."""
