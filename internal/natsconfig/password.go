package natsconfig

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strconv"
)

// Passwords are the passwords of users, by name.
type Passwords map[string]string

// Complete returns passwords for every user of c: those of p, and random ones for users that p does not have.
func (p Passwords) Complete(c Config) Passwords {
	all := make(Passwords)
	for _, name := range c.Users() {
		if all[name] = p[name]; all[name] == "" {
			all[name] = rand.Text()
		}
	}
	return all
}

// Credential returns the fields of a user with its password. It is a [Config.Credential].
func (p Passwords) Credential(user string) string {
	return fmt.Sprintf("user: %s, password: %s", strconv.Quote(user), strconv.Quote(p[user]))
}

// URLs returns the address of a server for each user.
func (p Passwords) URLs(host string) map[string]string {
	urls := make(map[string]string)
	for name, password := range p {
		address := url.URL{Scheme: "nats", User: url.UserPassword(name, password), Host: host}
		urls[name] = address.String()
	}
	return urls
}
