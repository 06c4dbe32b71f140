"""What is said on the wire and what is stored: the contracts and the code made from them."""
