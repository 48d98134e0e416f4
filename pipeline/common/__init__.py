"""Common code of the pipeline: errors, values of options, figures as text, checks of installed packages."""
