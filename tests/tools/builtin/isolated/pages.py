"""Web pages as people write them, and malformed ones."""

SENTENCES = (
    "The bridge was closed in March, when an inspection found cracks in two of its pillars. "
    "Repairs were planned for the summer and took until the following spring, because the steel "
    "came late. Since then lorries use the road along the river, which was not built for them."
)
ARTICLE = f"""<!DOCTYPE html>
<html lang="en">
<head>
  <title>Bridges &amp; roads
     in 2031</title>
  <style>p {{ color: red }}</style>
  <script>var hidden = "<p>never shown</p>";</script>
</head>
<body>
  <nav><ul><li><a href="/">Home</a></li><li><a href="/about">About us</a></li></ul></nav>
  <main>
    <article>
      <h1>A bridge reopens</h1>
      <p>{SENTENCES} Read <a href="report?page=2">the report</a> or
         <a href="javascript:alert(1)">press here</a>.</p>
      <h2>What it cost</h2>
      <table><tr><th>Year</th><th>Cost</th></tr><tr><td>2030</td><td>12</td></tr></table>
      <ul><li>Steel</li><li>Concrete</li></ul>
      <pre><code>for pillar in bridge:
    inspect(pillar)</code></pre>
      <p>{SENTENCES} That is <b>all</b>.</p>
    </article>
  </main>
  <footer>Copyright by nobody. Cookies, terms, imprint.</footer>
</body>
</html>
"""


def page(body: str) -> str:
    return f"<html><head><title>t</title></head><body>{body}</body></html>"
