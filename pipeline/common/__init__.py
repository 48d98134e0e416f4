"""Common code of the pipeline: errors, values of options, figures as text, checks of installed packages.

Nothing here knows logs or lakes. Every package of the pipeline may import it; it imports none of them.
"""
