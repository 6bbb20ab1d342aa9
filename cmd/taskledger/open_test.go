package main

import "testing"

// In a container without users, and for a user of a domain of Windows, a session has the name of the database login.
func TestSessionName(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]string{"": "services", `SHOP\ada`: "services", "ada": "ada"} {
		if have := sessionName(user, "services"); have != want {
			t.Errorf("user %q: got %q, want %q", user, have, want)
		}
	}
}
