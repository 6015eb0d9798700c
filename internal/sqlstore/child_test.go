package sqlstore

func child(role string) int { return 2 }
