"""How contracts may change: what is released stays readable, and everything else is told why."""
