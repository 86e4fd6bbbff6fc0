"""Pages: one script each, and what some of them share. Not named `pages`: Streamlit takes such a folder for its own."""
