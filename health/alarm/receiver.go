package alarm

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Timeout is how long one delivery may take.
const Timeout = 30 * time.Second

// Receiver is somebody who gets alarms, in exactly one way.
type Receiver struct {
	Name    string   `json:"name"` // words of A-Z a-z 0-9 _ - joined by dots; its alarms are "<name>/<number>"
	Mail    *Mail    `json:"mail"`
	Webhook *Webhook `json:"webhook"`
	Command []string `json:"command"` // program and arguments; see [Message] for its stdin
}

// maxName leaves room for the number in a biz_id.
const maxName = 100

// Validate reports every fault at once, each a [*ledger.InvalidError] that names the field. It
// looks whether the files and variables are there that hold secrets, but connects to nobody.
func (r Receiver) Validate() error { return join(r.faults()) }

func (r Receiver) faults() (faults []error) {
	if err := ledger.Kind(r.Name).Validate(); err != nil {
		faults = append(faults, renamed(err, "name"))
	} else if len(r.Name) > maxName {
		faults = append(faults, invalid("name", r.Name, "must have at most %d bytes", maxName))
	}
	ways := 0
	if r.Mail != nil {
		ways++
		for _, fault := range r.Mail.faults() {
			faults = append(faults, renamed(fault, "mail."))
		}
	}
	if r.Webhook != nil {
		ways++
		for _, fault := range r.Webhook.faults() {
			faults = append(faults, renamed(fault, "webhook."))
		}
	}
	if len(r.Command) > 0 {
		ways++
		for i, word := range r.Command {
			if strings.ContainsRune(word, 0) || i == 0 && word == "" {
				faults = append(faults, invalid(fmt.Sprintf("command[%d]", i), word, "must be a program or an argument"))
			}
		}
	}
	if ways != 1 {
		faults = append(faults, invalid("mail", "", "or webhook or command must be given, exactly one of them"))
	}
	return faults
}

// send delivers a message. It returns within [Timeout], or soon after.
func (r Receiver) send(ctx context.Context, m Message) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	switch {
	case r.Mail != nil:
		return r.Mail.send(ctx, m)
	case r.Webhook != nil:
		return r.Webhook.send(ctx, m)
	}
	return runCommand(ctx, r.Command, m)
}

// secret reads what a file or a variable of the environment holds, without white space around it.
func secret(file, variable string) (string, error) {
	if variable != "" {
		return strings.TrimSpace(os.Getenv(variable)), nil
	}
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	return strings.TrimSpace(string(text)), err
}

// secretFaults says what keeps a secret from being read. name is "password" or the like.
func secretFaults(name, file, variable string) []error {
	text, err := secret(file, variable)
	switch {
	case file != "" && variable != "":
		return []error{invalid(name+"_file", file, "cannot be given together with %s_env", name)}
	case err != nil:
		return []error{invalid(name+"_file", file, "cannot be read: %s", err)}
	case variable != "" && text == "":
		return []error{invalid(name+"_env", variable, "is not set")}
	case file != "" && text == "":
		return []error{invalid(name+"_file", file, "is empty")}
	}
	return nil
}
