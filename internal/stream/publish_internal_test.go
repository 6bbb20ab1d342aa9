package stream

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// A message that a consumer delivers to the inbox is not an acknowledgement, even if its body has the form of one: it
// has a reply subject.
func TestDeliveredMessageIsNotAnAcknowledgement(t *testing.T) {
	p := &Publisher{acks: acksOf(Name), prefix: "inbox."}
	now := p.begin(1, false)
	m := &nats.Msg{Subject: "inbox." + now.id + ".0", Data: []byte(`{"stream":"LEDGER","seq":7}`)}
	m.Reply = "$JS.ACK.LEDGER.evil.1.1.1.1795355718204136966.4"
	p.acknowledged(m)
	if now.got[0] {
		t.Errorf("acknowledged: %+v", now.results[0])
	}
	m.Reply = ""
	p.acknowledged(m)
	if !now.got[0] || now.results[0].Seq != 7 {
		t.Errorf("the acknowledgement is not recorded: %+v", now.results[0])
	}
}
