package alarm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/webhooks"
	"github.com/taskledger/taskledger/ledger"
)

// timeout is the timeout of one delivery.
const timeout = 30 * time.Second

// Receiver gets alarms. Exactly one of Mail, Webhook and Command is required.
type Receiver struct {
	Name string `json:"name"` // words of A-Z a-z 0-9 _ - joined by dots; its alarms are "<name>/<number>"
	Mail *Mail  `json:"mail"`
	// Webhook gets requests of type [Kind] whose data is a [Message]. Its Timeout is at most 30 s. Default: 30 s.
	Webhook *webhooks.Endpoint `json:"webhook"`
	Command []string           `json:"command"` // program and arguments; its stdin is a [Message]
}

// maxName leaves room for the number in a biz_id.
const maxName = 100

// Validate reports every fault at once, each an [*ledger.InvalidError] with the name of the field. It reads the
// files and variables that hold secrets, and opens no connection.
func (r Receiver) Validate() error { return join(r.faults()) }

func (r Receiver) faults() (faults []error) {
	if err := ledger.Kind(r.Name).Validate(); err != nil {
		faults = append(faults, renamed(err, "name"))
	} else if len(r.Name) > maxName {
		faults = append(faults, invalid("name", r.Name, "must have at most %d bytes", maxName))
	}
	transports := 0
	if r.Mail != nil {
		transports++
		for _, fault := range r.Mail.faults() {
			faults = append(faults, renamed(fault, "mail."))
		}
	}
	if r.Webhook != nil {
		transports++
		for _, fault := range r.webhookFaults() {
			faults = append(faults, renamed(fault, "webhook."))
		}
	}
	if len(r.Command) > 0 {
		transports++
		for i, word := range r.Command {
			if strings.ContainsRune(word, 0) || i == 0 && word == "" {
				faults = append(faults,
					invalid(fmt.Sprintf("command[%d]", i), word, "must be a program or an argument"))
			}
		}
	}
	if transports != 1 {
		faults = append(faults, invalid("mail", "", "exactly one of mail, webhook and command is required"))
	}
	return faults
}

func (r Receiver) webhookFaults() (faults []error) {
	if t := time.Duration(r.Webhook.Timeout); t > timeout {
		faults = append(faults, invalid("timeout", t.String(), "must be at most %s", timeout))
	}
	return append(faults, split(r.Webhook.Validate())...)
}

// sendWebhook sends a message as a webhook. Its id includes the time, because a restored database gives the numbers of
// lost alarms to new ones.
func (r Receiver) sendWebhook(ctx context.Context, m Message) error {
	endpoint := *r.Webhook
	if endpoint.Timeout == 0 {
		endpoint.Timeout = Duration(timeout)
	}
	name := strings.ReplaceAll(m.Alarm, ".", "/") // an id must not contain dots; a receiver's name contains no slash
	return endpoint.Send(ctx, webhooks.Message{
		ID: fmt.Sprintf("alarm_%s_%s_%d", m.Ledger, name, m.At.UnixMicro()), Type: string(Kind), At: m.At, Data: m,
	})
}

// send delivers a message. It returns within timeout, or soon after.
func (r Receiver) send(ctx context.Context, m Message) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case r.Mail != nil:
		return r.Mail.send(ctx, m)
	case r.Webhook != nil:
		return r.sendWebhook(ctx, m)
	}
	return runCommand(ctx, r.Command, m)
}
