package stream

import (
	"fmt"
	"time"
)

// The ways to answer a delivery, published on its reply subject. Answers are not waited for: one
// that is lost means that the message comes again.
var (
	AckAnswer      = []byte("+ACK")
	ProgressAnswer = []byte("+WPI") // it is being worked on
	NakAnswer      = []byte("-NAK")
)

// NakAfter asks for the message again after a while.
func NakAfter(d time.Duration) []byte {
	return fmt.Appendf(nil, `-NAK {"delay": %d}`, d.Nanoseconds())
}

// TermAnswer asks never to deliver the message again; the reason goes into an advisory.
func TermAnswer(reason string) []byte { return []byte("+TERM " + reason) }
