"""`mailboxd run`: the parts of a workspace, put together, and the loop that drives them."""
