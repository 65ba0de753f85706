"""What crosses between hosts, as pure values and rules: names, subjects, receipts, cards, members."""
