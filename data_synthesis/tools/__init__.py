"""Search and visit beyond the offline web: live backends, and a corpus of one's own."""
