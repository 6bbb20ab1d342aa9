package post

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// AddressError is the error of a connection to an address that is not public and not allowed.
type AddressError struct{ Address netip.Addr }

func (e *AddressError) Error() string {
	return fmt.Sprintf("address %s is not public: allow it in the receiver's configuration, as in allow: [%[1]s/%d]",
		e.Address, e.Address.BitLen())
}

// notPublic adds ranges that netip.Addr does not recognize. They are reachable only from inside of a network, or lead
// to such ranges: shared and special networks, benchmarks, documentation, and translations of IPv4.
var notPublic = prefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16",
	"3fff::/20")

// global is the range of IPv6 addresses that are assigned to networks. The others, such as ::127.0.0.1 and
// 64:ff9b::127.0.0.1, are translations of IPv4, local, special or free.
var global = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

func isPublic(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && (a.Is4() || global.Contains(a)) && !contains(notPublic, a)
}

// check is the Control function of a net.Dialer: it is called with the address of each connection before it is made.
func (c Config) check(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return CheckAddress(to.Addr(), c.Allow)
}

// number matches the last label of a host that systems resolve as an IPv4 address in another notation: 127.1,
// 2130706433 and 0x7f000001 are 127.0.0.1. A domain name never ends like this.
var number = regexp.MustCompile(`^([0-9]+|0[xX][0-9a-fA-F]*)$`)

// CheckHost returns an error if the host of a URL is an address that is not public and not allowed, or not in its usual
// notation. A name is resolved and checked for each connection.
func CheckHost(host string, allow []netip.Prefix) error {
	if a, err := netip.ParseAddr(host); err == nil {
		return CheckAddress(a, allow)
	}
	host = strings.TrimSuffix(host, ".")
	if number.MatchString(host[strings.LastIndexByte(host, '.')+1:]) {
		return errors.New("must have a name, or an address such as 192.0.2.1 or [2001:db8::1]")
	}
	return nil
}

// CheckAddress returns an [*AddressError] unless an address is public or allowed.
func CheckAddress(a netip.Addr, allow []netip.Prefix) error {
	a = a.Unmap().WithZone("")
	if isPublic(a) || contains(allow, a) {
		return nil
	}
	return &AddressError{Address: a}
}
