package difference

// edit replaces the lines from one to another, the latter excluded, with others.
type edit struct {
	from, to int
	with     []line
}

// mostEdits bounds the search for the fewest edits, whose memory grows with their square. Beyond it, one edit replaces
// everything between the equal lines at the begin and at the end.
const mostEdits = 2000

func same(a, b line) bool { return a.depth == b.depth && a.text == b.text }

// edits returns the edits that make b from a, in order.
func edits(a, b []line) []edit {
	begin := 0
	for begin < min(len(a), len(b)) && same(a[begin], b[begin]) {
		begin++
	}
	end := 0
	for end < min(len(a), len(b))-begin && same(a[len(a)-1-end], b[len(b)-1-end]) {
		end++
	}
	found := fewest(a[begin:len(a)-end], b[begin:len(b)-end])
	for i := range found {
		found[i].from += begin
		found[i].to += begin
	}
	return found
}

// fewest is the greedy algorithm of Myers, "An O(ND) Difference Algorithm and Its Variations" (1986): after d lines
// removed or added, reached[k] is the most lines of a that can be passed so that k more of a than of b are passed.
func fewest(a, b []line) []edit {
	if len(a)+len(b) == 0 {
		return nil
	}
	var history []map[int]int
	reached := map[int]int{1: 0}
	for d := 0; d <= min(len(a)+len(b), mostEdits); d++ {
		next := make(map[int]int, d+1)
		for k := -d; k <= d; k += 2 {
			x := reached[k-1] + 1 // removes a line of a
			if k == -d || k != d && reached[k-1] < reached[k+1] {
				x = reached[k+1] // adds a line of b
			}
			for x < len(a) && x-k < len(b) && same(a[x], b[x-k]) {
				x++
			}
			next[k] = x
			if x >= len(a) && x-k >= len(b) {
				return path(history, a, b)
			}
		}
		history = append(history, next)
		reached = next
	}
	return []edit{{to: len(a), with: b}}
}

// path follows the history of the search back from the end of a and b.
func path(history []map[int]int, a, b []line) (found []edit) {
	removed, added := make([]bool, len(a)), make([]bool, len(b))
	x, y := len(a), len(b)
	for d := len(history); d > 0; d-- {
		before, k := history[d-1], x-y
		isAdded := k == -d || k != d && before[k-1] < before[k+1]
		if isAdded {
			x = before[k+1]
			y = x - (k + 1)
			added[y] = true
			continue
		}
		x = before[k-1]
		y = x - (k - 1)
		removed[x] = true
	}
	for x, y := 0, 0; x < len(a) || y < len(b); {
		e := edit{from: x}
		for ; x < len(a) && removed[x]; x++ {
		}
		for ; y < len(b) && added[y]; y++ {
			e.with = append(e.with, b[y])
		}
		if e.to = x; e.from < e.to || len(e.with) > 0 {
			found = append(found, e)
			continue
		}
		x++
		y++
	}
	return found
}
