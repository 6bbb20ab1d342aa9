package alarm_test

import (
	"crypto/tls"
	"errors"
	"io"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/alarm"
	"github.com/taskledger/taskledger/internal/difference"
)

// body parses a mail and returns its header and its decoded text.
func body(t testing.TB, text string) (mail.Header, string) {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var r = m.Body
	if m.Header.Get("Content-Transfer-Encoding") == "quoted-printable" {
		r = quotedprintable.NewReader(r)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return m.Header, string(plain)
}

// Ten thousand dead tasks are one mail with counts, whatever their errors contain. A later alarm waits
// until Rules.Every has passed.
func TestTenThousandDeadAreOneMail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := newMailServer(t, "starttls")
	c := b.config(server.receiver("ops"))
	c.Rules.Every = alarm.Duration(patience) * 60
	w := b.watcher(c)
	b.die("coupon.send", "order-", 9_000, "no such customer\r\n.\r\nRCPT TO:<thief@example.com>\x1b[2J")
	b.die("coupon.send", "gift-<b>", 1_000, "out of coupons")
	b.pass(w)
	b.die("coupon.send", "later-", 1, "out of coupons")
	b.pass(w)
	b.pass(w)
	mails := server.received()
	if len(mails) != 1 {
		t.Fatalf("%d mails, want 1", len(mails))
	}
	if diff := difference.Of([]string{"ops@example.com", "boss@example.com"}, mails[0].to); diff != "" {
		t.Errorf("recipients (-want +got):\n%s", diff)
	}
	if mails[0].from != "ledger@example.com" {
		t.Errorf("sender %q", mails[0].from)
	}
	header, text := body(t, mails[0].text)
	if want := "[taskledger] 10,000 tasks of kind coupon.send are dead"; header.Get("Subject") != want {
		t.Errorf("subject %q, want %q", header.Get("Subject"), want)
	}
	for _, want := range []string{
		"9,000 tasks, the newest at", `no such customer\r\n.\r\nRCPT TO:<thief@example.com>\x1b[2J`,
		"1,000 tasks", "out of coupons",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\x00") {
		t.Errorf("control characters in %q", text)
	}
	if alarms := b.alarms(); len(alarms) != 1 || alarms[0].State != "succeeded" {
		t.Errorf("alarms %+v", alarms)
	}
}

// A password is sent only over TLS with a trusted certificate.
func TestMailIsEncrypted(t *testing.T) {
	t.Parallel()
	message := alarm.Message{Alarm: "ops/1", Ledger: "l", Items: []alarm.Item{{Text: "ümläut"}}}
	t.Run("implicit", func(t *testing.T) {
		t.Parallel()
		server := newMailServer(t, "implicit")
		r := server.receiver("ops")
		r.Mail.TLS = "implicit"
		if err := r.Send(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		if _, text := body(t, server.received()[0].text); !strings.Contains(text, "ümläut") {
			t.Error(text)
		}
	})
	t.Run("unknown certificate", func(t *testing.T) {
		t.Parallel()
		server := newMailServer(t, "starttls")
		r := server.receiver("ops")
		r.Mail.CAFile = ""
		err := r.Send(t.Context(), message)
		var certificate *tls.CertificateVerificationError
		if !errors.As(err, &certificate) || server.passwords() != 0 {
			t.Errorf("error %v, %d passwords were sent", err, server.passwords())
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		t.Parallel()
		server := newMailServer(t, "starttls")
		r := server.receiver("ops")
		r.Mail.PasswordFile = file(t, "password", "guess")
		err := r.Send(t.Context(), message)
		if err == nil || strings.Contains(err.Error(), "guess") || server.passwords() != 1 {
			t.Errorf("error %v, %d passwords were sent", err, server.passwords())
		}
	})
	t.Run("no STARTTLS", func(t *testing.T) {
		t.Parallel()
		server := newMailServer(t, "none") // like a man in the middle, it offers AUTH without TLS
		r := server.receiver("ops")
		if err := r.Send(t.Context(), message); err == nil || server.passwords() != 0 {
			t.Errorf("error %v, %d passwords were sent in the clear", err, server.passwords())
		}
	})
}
