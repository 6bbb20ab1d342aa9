package alarm

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	netmail "net/mail"
	"os"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/taskledger/taskledger/internal/secret"
)

// Mail is the mail server and the addresses of a receiver.
type Mail struct {
	Host         string   `json:"host"`
	Port         int      `json:"port"`          // Default: 587; 465 with tls: implicit, 25 with tls: none.
	TLS          string   `json:"tls"`           // starttls, implicit, or none, without a password. Default: starttls.
	CAFile       string   `json:"ca_file"`       // trusted certificates, PEM. Default: the machine's.
	User         string   `json:"user"`          // Default: no login.
	PasswordFile string   `json:"password_file"` // file with the user's password,
	PasswordEnv  string   `json:"password_env"`  // or environment variable with it
	From         string   `json:"from"`
	To           []string `json:"to"`
}

// Values of [Mail].TLS.
const (
	tlsStart    = "starttls"
	tlsImplicit = "implicit"
	tlsNone     = "none"
)

func (m *Mail) faults() (faults []error) {
	if m.Host == "" || strings.ContainsAny(m.Host, " /:\r\n") && !strings.HasPrefix(m.Host, "[") {
		faults = append(faults, invalid("host", m.Host, "must be a name or an address, without a port"))
	}
	if m.Port < 0 || m.Port > 65535 {
		faults = append(faults, invalid("port", fmt.Sprint(m.Port), "must be between 1 and 65535"))
	}
	switch m.TLS {
	case "", tlsStart, tlsImplicit:
	case tlsNone:
		if m.User != "" {
			const rule = "must not be set with tls: none, which would send the password in the clear"
			faults = append(faults, invalid("user", m.User, rule))
		}
	default:
		faults = append(faults, invalid("tls", m.TLS, "must be starttls, implicit or none"))
	}
	if _, err := m.roots(); err != nil {
		faults = append(faults, invalid("ca_file", m.CAFile, "%s", err))
	}
	faults = append(faults, secret.Faults("password", m.PasswordFile, m.PasswordEnv)...)
	if (m.User != "") != (m.PasswordFile+m.PasswordEnv != "") {
		faults = append(faults, invalid("user", m.User, "user and password_file or password_env must be set together"))
	}
	if _, err := netmail.ParseAddress(m.From); err != nil {
		faults = append(faults, invalid("from", m.From, "must be a mail address"))
	}
	if len(m.To) == 0 {
		faults = append(faults, invalid("to", "", "at least one address is required"))
	}
	for i, to := range m.To {
		if _, err := netmail.ParseAddress(to); err != nil {
			faults = append(faults, invalid(fmt.Sprintf("to[%d]", i), to, "must be a mail address"))
		}
	}
	return faults
}

func (m *Mail) roots() (*x509.CertPool, error) {
	if m.CAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(m.CAFile)
	if err != nil {
		return nil, fmt.Errorf("must be a readable file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("must contain a certificate")
	}
	return pool, nil
}

func (m *Mail) client() (*mail.Client, error) {
	roots, err := m.roots()
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	options := []mail.Option{mail.WithTimeout(timeout), mail.WithTLSConfig(&tls.Config{
		ServerName: strings.Trim(m.Host, "[]"), RootCAs: roots, MinVersion: tls.VersionTLS12,
	})}
	port := m.Port
	switch m.TLS {
	case tlsImplicit:
		options, port = append(options, mail.WithSSL()), cmp.Or(port, mail.DefaultPortSSL)
	case tlsNone:
		options, port = append(options, mail.WithTLSPolicy(mail.NoTLS)), cmp.Or(port, mail.DefaultPort)
	default:
		options, port = append(options, mail.WithTLSPolicy(mail.TLSMandatory)), cmp.Or(port, mail.DefaultPortTLS)
	}
	options = append(options, mail.WithPort(port))
	if m.User != "" {
		password, err := secret.Read(m.PasswordFile, m.PasswordEnv)
		if err != nil {
			return nil, fmt.Errorf("password: %w", err)
		}
		options = append(options,
			mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(m.User), mail.WithPassword(password))
	}
	return mail.NewClient(m.Host, options...)
}

func (m *Mail) send(ctx context.Context, message Message) error {
	out := mail.NewMsg()
	if err := out.From(m.From); err != nil {
		return err
	}
	if err := out.To(m.To...); err != nil {
		return err
	}
	out.Subject(message.Subject())
	// All deliveries of an alarm share one Message-ID, so mail programs show it once.
	out.SetMessageIDWithValue(strings.ReplaceAll(message.Alarm, "/", ".") + "@" + message.Ledger + ".taskledger")
	out.SetDateWithValue(message.At)
	out.SetGenHeader("X-Taskledger-Alarm", message.Alarm)
	out.SetGenHeader("Auto-Submitted", "auto-generated") // no out-of-office reply
	out.SetBodyString(mail.TypeTextPlain, message.Text())
	client, err := m.client()
	if err != nil {
		return err
	}
	return client.DialAndSendWithContext(ctx, out)
}
