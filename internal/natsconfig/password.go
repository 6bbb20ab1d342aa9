package natsconfig

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strconv"
)

// Passwords are the passwords of users, by name.
type Passwords map[string]string

// Subscriber is the user of the servers of serve and demo that receives events, by the consumer of this name.
const Subscriber = "subscriber"

// Own returns the accounts of a server of serve or demo, and their users' passwords. It takes passwords from known, and
// generates the missing ones.
func Own(known Passwords) (accounts string, all Passwords) {
	c := Config{Subscribers: []string{Subscriber}, Served: []string{anyName}}
	all = make(Passwords)
	for _, name := range c.Users() {
		if all[name] = known[name]; all[name] == "" {
			all[name] = rand.Text()
		}
	}
	c.Credential = all.Credential
	return c.AccountsText(), all
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
