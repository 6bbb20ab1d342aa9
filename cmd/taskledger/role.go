package main

import (
	"fmt"
	"strings"

	"github.com/taskledger/taskledger/migrations"
)

// owner stands for the owner of the schema taskledger.
const owner = "owner"

// roleOf maps each command to the least role that may run it, as docs/operations.md promises. The scripts of the tests
// run each command as its role.
var roleOf = map[string]string{
	"taskledger serve":              "relay",
	"taskledger enqueue":            "producer",
	"taskledger import watermill":   "producer",
	"taskledger status":             "reader",
	"taskledger doctor":             "reader",
	"taskledger task show":          "reader",
	"taskledger task list":          "reader",
	"taskledger task history":       "reader",
	"taskledger task tree":          "reader",
	"taskledger task wait":          "reader",
	"taskledger task dead":          "reader",
	"taskledger task cancel":        "operator",
	"taskledger task release":       "operator",
	"taskledger task reschedule":    "operator",
	"taskledger task bury":          "operator",
	"taskledger schedule list":      "reader",
	"taskledger schedule show":      "reader",
	"taskledger schedule apply":     "operator",
	"taskledger schedule run":       "operator",
	"taskledger schedule pause":     "operator",
	"taskledger schedule resume":    "operator",
	"taskledger schedule delete":    "operator",
	"taskledger alarm list":         "reader",
	"taskledger alarm test":         "operator",
	"taskledger limit list":         "reader",
	"taskledger limit set":          "operator",
	"taskledger limit remove":       "operator",
	"taskledger kind list":          "reader",
	"taskledger kind pause":         "operator",
	"taskledger kind resume":        "operator",
	"taskledger worker list":        "reader",
	"taskledger parked list":        "reader",
	"taskledger parked show":        "reader",
	"taskledger parked retry":       "operator",
	"taskledger parked discard":     "operator",
	"taskledger illegal list":       "reader",
	"taskledger illegal dismiss":    "operator",
	"taskledger projection list":    "reader",
	"taskledger projection parked":  "reader",
	"taskledger projection verify":  "operator",
	"taskledger projection retry":   "operator",
	"taskledger projection skip":    "operator",
	"taskledger projection rebuild": owner, // operator, for users' projections
	"taskledger stream show":        "reader",
	"taskledger stream rebuild":     "operator",
	"taskledger migrate status":     "reader",
	"taskledger migrate up":         owner,
	"taskledger migrate roles":      owner,
	"taskledger rebase":             owner,
	"taskledger events list":        "reader",
	"taskledger events tail":        "reader",
	"taskledger events stats":       "reader",
	"taskledger events replay":      "operator",
	"taskledger state as-of":        "reader",
	"taskledger replay what-if":     "reader",
	"taskledger seal":               "archiver",
	"taskledger seal verify":        "reader",
	"taskledger seal proof":         "reader",
	"taskledger task clone":         "operator",
	"taskledger subscriber list":    "reader",
	"taskledger subscriber show":    "reader",
	"taskledger subscriber seek":    "operator",
	"taskledger subscriber pause":   "operator",
	"taskledger subscriber resume":  "operator",
	"taskledger subscriber give":    "operator",
	"taskledger subscriber serve":   "subscriber",
	"taskledger nats-url":           "worker", // the user's role, worker by default
	"taskledger webhook serve":      "producer, subscriber, worker",
	"taskledger subscriber delete":  "operator",
	"taskledger token create":       "operator",
	"taskledger token list":         "operator",
	"taskledger token revoke":       "operator",
}

// roleHint returns the cure of a right that the login lacks.
func (a *app) roleHint() string {
	switch role := roleOf[a.command]; role {
	case "":
		return "connect as the owner of the schema taskledger"
	case owner:
		return "connect as the owner of the schema taskledger, or as a member of it; " +
			"to create the schema, as a login with CREATE on the database"
	default:
		var names []string
		for _, name := range strings.Split(role, ", ") {
			names = append(names, migrations.RoleName(a.database, name))
		}
		if len(names) > 1 {
			return fmt.Sprintf("the roles %s together can do this: grant them to the login; "+
				"taskledger migrate roles, as the owner, makes them and their rights", strings.Join(names, ", "))
		}
		return fmt.Sprintf("the role %s can do this: grant it to the login; "+
			"taskledger migrate roles, as the owner, makes it and its rights", names[0])
	}
}
