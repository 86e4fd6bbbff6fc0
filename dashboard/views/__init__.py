"""One file per page. Streamlit runs them; nothing imports them."""
