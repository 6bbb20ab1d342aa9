package main

import (
	"fmt"
	"strings"

	"github.com/taskledger/taskledger/migrations"
)

// owner stands for the owner of the schema taskledger.
const owner = "owner"

// rebuildOfSubscriber is the command that rebuilds a subscriber's tables, as its program's operator.
const rebuildOfSubscriber = "taskledger rebuild tables SUBSCRIBER"

// roleOf maps each command, with its object, to the least role that may run it, as docs/operations.md promises. The
// scripts of the tests run each command as its role.
var roleOf = map[string]string{
	"taskledger serve":             "relay",
	"taskledger serve subscriber":  "subscriber",
	"taskledger serve webhooks":    "producer, subscriber, worker",
	"taskledger enqueue":           "producer",
	"taskledger import watermill":  "producer",
	"taskledger status":            "reader",
	"taskledger top":               "reader",
	"taskledger doctor":            "reader",
	"taskledger show tasks":        "reader",
	"taskledger show dead":         "reader",
	"taskledger show kinds":        "reader",
	"taskledger show limits":       "reader",
	"taskledger show workers":      "reader",
	"taskledger show schedules":    "reader",
	"taskledger show subscribers":  "reader",
	"taskledger show stream":       "reader",
	"taskledger show parked":       "reader",
	"taskledger show illegal":      "reader",
	"taskledger show alarms":       "reader",
	"taskledger show tokens":       "operator",
	"taskledger history":           "reader",
	"taskledger tree":              "reader",
	"taskledger wait":              "reader",
	"taskledger events":            "reader",
	"taskledger state":             "reader",
	"taskledger what-if":           "reader",
	"taskledger cancel":            "operator",
	"taskledger release":           "operator",
	"taskledger reschedule":        "operator",
	"taskledger bury":              "operator",
	"taskledger clone":             "operator",
	"taskledger limit":             "operator",
	"taskledger pause kind":        "operator",
	"taskledger pause schedule":    "operator",
	"taskledger pause subscriber":  "operator",
	"taskledger resume kind":       "operator",
	"taskledger resume schedule":   "operator",
	"taskledger resume subscriber": "operator",
	"taskledger delete schedule":   "operator",
	"taskledger delete subscriber": "operator",
	"taskledger delete limit":      "operator",
	"taskledger apply schedules":   "operator",
	"taskledger run schedule":      "operator",
	"taskledger seek subscriber":   "operator",
	"taskledger retry parked":      "operator",
	"taskledger discard parked":    "operator",
	"taskledger discard illegal":   "operator",
	"taskledger rebuild tables":    owner,
	rebuildOfSubscriber:            "operator",
	"taskledger rebuild stream":    "operator",
	"taskledger replay":            "operator",
	"taskledger seal":              "archiver",
	"taskledger archive":           "archiver",
	"taskledger erase":             "archiver",
	"taskledger prove":             "reader",
	"taskledger verify seal":       "reader",
	"taskledger verify tables":     "operator",
	"taskledger migrate up":        owner,
	"taskledger migrate roles":     owner,
	"taskledger rebase":            owner,
	"taskledger url nats":          "worker", // the user's role, worker by default
	"taskledger open":              "operator",
	"taskledger create token":      "operator",
	"taskledger delete token":      "operator",
	"taskledger test alarms":       "operator",
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
