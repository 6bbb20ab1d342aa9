package webhook

var (
	Sign        = sign
	ParseSecret = parseSecret
)
