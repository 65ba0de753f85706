"""Mail that arrives: judged once, recorded, moved out of the inbox, and looked after where it was filed."""
