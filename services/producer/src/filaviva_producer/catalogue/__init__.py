"""The page of contracts: what may be submitted, published and listened to, for people."""
