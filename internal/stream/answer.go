package stream

import (
	"fmt"
	"time"
)

// The answers to a delivery, published on its reply subject. They are not acknowledged: if one is lost, the
// message is delivered again.
var (
	AckAnswer      = []byte("+ACK")
	ProgressAnswer = []byte("+WPI") // its handler is running
	NakAnswer      = []byte("-NAK")
)

// NakAfter requests the message again after a delay.
func NakAfter(d time.Duration) []byte {
	return fmt.Appendf(nil, `-NAK {"delay": %d}`, d.Nanoseconds())
}

// TermAnswer ends the deliveries of the message; an advisory contains the reason.
func TermAnswer(reason string) []byte { return []byte("+TERM " + reason) }
