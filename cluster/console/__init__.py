"""The web console: what the nodes of groups show of themselves, as pages for a browser on the same machine.

`hub` watches the nodes while a page is open, `group_view` and `findings` are pure, `app` serves pages and one stream of
live data. It changes nothing: each page names the command that does. It needs the extra `console`.
"""
