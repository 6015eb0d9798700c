package approval

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

var letters = base32.StdEncoding.WithPadding(base32.NoPadding)

// ID is the id of the approval that a job asks for under a key: twelve letters and
// digits, the same at every time and place.
func ID(tenant, job, key string) string {
	var b []byte
	for _, s := range []string{tenant, job, key} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return strings.ToLower(letters.EncodeToString(sum[:])[:12])
}
