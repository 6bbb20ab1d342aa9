package natsconfig

// Served is the user of the servers of serve and demo that receives the events of any subscriber that is served.
const Served = "served"

// anyName stands for every subscriber in Config.Served.
const anyName = "*"

// servedUser returns the name of the user that receives the events of a served subscriber.
func servedUser(name string) string {
	if name == anyName {
		return Served
	}
	return name
}

// ServerOf returns the name of the user that serves a subscriber, given the user that receives its events.
func ServerOf(user string) string { return user + "-server" }

// servedStream returns the name of the stream of a subscriber: outbox.ServedStream.
func servedStream(name string) string {
	if name == anyName {
		return anyName
	}
	return "SUBSCRIBER_" + name
}

// servedRights are for the program of a served subscriber: it receives and acknowledges the messages of its consumer,
// which has a stream and an account of its own.
func servedRights(name string) *rights {
	of := servedStream(name) + "." + name
	return &rights{
		publish: []string{
			"$JS.API.STREAM.INFO." + servedStream(name), "$JS.API.CONSUMER.INFO." + of,
			"$JS.API.CONSUMER.MSG.NEXT." + of, "$JS.ACK." + of + ".>",
		},
		subscribe: []string{inboxes},
	}
}

// serverRights are for taskledger subscriber serve.
func serverRights(name string) *rights {
	of := servedStream(name)
	return &rights{
		publish: []string{
			"subscriber." + name + ".>", "$JS.API.STREAM.INFO." + of, "$JS.API.STREAM.CREATE." + of,
			"$JS.API.CONSUMER.INFO." + of + "." + name, "$JS.API.CONSUMER.CREATE." + of + "." + name,
		},
		subscribe: []string{inboxes},
	}
}
