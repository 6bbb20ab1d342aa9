package archive

func init() { segmentBytes = 256 << 10 }
