"""The ledger: its entries, their fold into statuses, and the checks of its history."""
