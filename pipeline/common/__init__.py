"""What all of the pipeline shares: errors, values of options, figures as words, and what must be installed."""
